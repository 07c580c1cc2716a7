// What doctor finds in the database, the lake, its tables and files, with the way out.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Check, TriangleAlert } from "lucide-react";
import { useState } from "react";
import type { Finding } from "../../api/operation.ts";
import { doctorQuery } from "../../api/queries.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { writeCommand } from "../../parts/command.ts";
import { CheckField } from "../../parts/fields.tsx";
import { formatCount, plural } from "../../parts/format.ts";
import { Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

/** Of what may be thousands of findings of one kind. */
const SHOWN = 200;

export function Doctor() {
  const warehouse = useWarehouse();
  const [hasFiles, setHasFiles] = useState(false);
  const query = useQuery({
    ...doctorQuery(warehouse, hasFiles),
    staleTime: 0,
    refetchOnWindowFocus: false,
    placeholderData: keepPreviousData,
  });
  return (
    <div className="body">
      <title>Doctor · duckicelake</title>
      <Head title="Doctor" comment={`Examines the database, the lake, tables and files of ${warehouse}.`}>
        <CheckField name="Look for every data file, too" isOn={hasFiles} change={setHasFiles} />
        <button type="button" className="button" disabled={query.isFetching} onClick={() => void query.refetch()}>
          {query.isFetching ? "Examining…" : "Examine again"}
        </button>
      </Head>
      <Loaded query={query} lines={12}>
        {({ findings }) => {
          const bad = findings.filter(({ ok }) => !ok);
          const good = findings.filter(({ ok }) => ok);
          return (
            <>
              <p className={bad.length > 0 ? "banner bad" : "banner good"} role="status">
                {bad.length > 0
                  ? `${plural(bad.length, "check")} found something to be done.`
                  : `${plural(findings.length, "check")} found nothing to be done.`}{" "}
                Examined <Time at={query.dataUpdatedAt} />.
              </p>
              {bad.length > 0 ? (
                <Card title="To be done">
                  <Findings of={bad} />
                </Card>
              ) : null}
              <Card title="In order">
                <Findings of={good} />
              </Card>
            </>
          );
        }}
      </Loaded>
      <Card title="The same by command">
        <div className="inside">
          <Code
            text={writeCommand("doctor", warehouse, [], { "no-files": hasFiles ? undefined : true })}
            what="the command"
            isWrapped
          />
        </div>
      </Card>
    </div>
  );
}

function Findings({ of }: { of: readonly Finding[] }) {
  return (
    <ul className="findings">
      {of.slice(0, SHOWN).map(({ name, ok, detail, advice }) => (
        <li key={`${name} ${detail}`} className={ok ? "good" : "bad"}>
          {ok ? <Check className="icon plus" aria-hidden /> : <TriangleAlert className="icon minus" aria-hidden />}
          <div className="stack none">
            <strong>{name}</strong>
            <span className="quiet breaks">{detail}</span>
            {advice ? <p className="breaks">{advice}</p> : null}
          </div>
        </li>
      ))}
      {of.length > SHOWN ? (
        <li className="quiet">And {formatCount(of.length - SHOWN)} more: the command below lists all.</li>
      ) : null}
    </ul>
  );
}
