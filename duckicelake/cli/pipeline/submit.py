"""The pipeline for spark-submit, with the arguments of `duckicelake pipeline`.

spark-submit --master … --packages … submit.py ingest s3a://bucket/*.csv --table ns.t --uri http://catalog:8181
"""

from duckicelake.cli.pipeline.main import app

if __name__ == "__main__":
    app(prog_name="submit.py")
