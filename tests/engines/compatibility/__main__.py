"""python -m tests.engines.compatibility: write results.json and docs/engines.md from what the tests found."""

from tests.engines.compatibility.results import take_over, write_page

if __name__ == "__main__":
    take_over()
    write_page()
