import random,shutil,re,collections,os,traceback,pytest
from pathlib import Path
from tests.catalog.client import new_client
from tests.catalog.delta_reading import imported
from duckicelake.errors import CatalogError
@pytest.mark.timeout(900)
def test_mut(services, ducklake, warehouse, capsys):
    new_client(services)
    src=Path("/tmp/w10/H/c1/tables"); names=sorted(p.name for p in src.iterdir())
    seen=collections.Counter(); raw=collections.Counter()
    for seed in range(int(os.environ.get("A0","0")),int(os.environ.get("A1","150"))):
        r=random.Random(seed); n=r.choice(names); t=warehouse/"delta"/f"m{seed}"
        shutil.copytree(src/n,t,symlinks=True)
        files=[p for p in t.rglob("*") if p.is_file() and ("_delta_log" in str(p) or p.suffix==".bin") and not p.name.endswith(".crc")]
        for _ in range(r.randint(1,2)):
            p=r.choice(files)
            if not p.exists(): continue
            d=bytearray(p.read_bytes()); op=r.choice(["num","num","num","null","flip"])
            if op=="flip" and d:
                for _ in range(r.randint(1,3)): d[r.randrange(len(d))]=r.randrange(256)
            elif p.suffix==".json":
                ms=list(re.finditer(rb'":("(?:[^"\\]|\\.)*"|\d+|true|false|\[[^\]]*\]|\{[^{}]*\})',d))
                if ms:
                    m=r.choice(ms); d[m.start(1):m.end(1)]={"null":b"null","num":r.choice([b"-1",b"99999999999999999999",b"1.5",b"{}",b"[]",b"\"x\"",b"\"\""])}[op]
            p.write_bytes(d)
        try: imported(services,t,f"m{seed}"); seen["ok"]+=1
        except CatalogError as e: seen[type(e).__name__]+=1
        except Exception as e:
            tb=traceback.extract_tb(e.__traceback__)
            ours=[f for f in tb if "duckicelake" in f.filename][-1]
            key=(type(e).__name__,str(e)[:150],ours.filename.split("/")[-1],ours.lineno)
            if key not in raw:
                with capsys.disabled(): print("RAW seed",seed,n,key)
            raw[key]+=1
        shutil.rmtree(t)
    with capsys.disabled(): print(seen,sum(raw.values()))
