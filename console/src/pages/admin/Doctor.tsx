// What doctor finds in the database, the lake, its tables and files, check by check, with the way out.
import { Check, LoaderCircle, TriangleAlert } from "lucide-react";
import { useEffect, useState } from "react";
import { type CheckProgress, examineLake, type Finding } from "../../api/operation.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { writeCommand } from "../../parts/command.ts";
import { CheckField } from "../../parts/fields.tsx";
import { formatCount, plural } from "../../parts/format.ts";
import { Trouble } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

/** Of what may be thousands of findings of one check. */
const SHOWN = 200;

type State = "running" | "done" | "stopped";

interface Examination {
  readonly state: State;
  readonly checks: readonly CheckProgress[];
  readonly error?: Error;
  readonly at: number;
}

const BEGUN: Examination = { state: "running", checks: [], at: 0 };

/** An examination begins with the page, ends with it, and begins again with `examine`. */
function useExamination(warehouse: string, hasFiles: boolean) {
  const [round, setRound] = useState(0);
  const [examination, setExamination] = useState(BEGUN);
  const [control, setControl] = useState<AbortController | null>(null);
  useEffect(() => {
    const made = new AbortController();
    const end = (state: State, error?: Error) =>
      setExamination(({ checks }) => ({ state, checks, at: Date.now(), ...(error ? { error } : {}) }));
    setControl(made);
    setExamination(BEGUN);
    examineLake(warehouse, hasFiles, made.signal, (progress) =>
      setExamination((last) => (made.signal.aborted ? last : { ...last, checks: addProgress(last.checks, progress) })),
    ).then(
      () => end("done"),
      (error: Error) => {
        if (made.signal.aborted && made.signal.reason !== STOPPED) return;
        end("stopped", made.signal.aborted ? undefined : error);
      },
    );
    return () => made.abort();
  }, [warehouse, hasFiles, round]);
  return {
    ...examination,
    examine: () => setRound((last) => last + 1),
    stop: () => control?.abort(STOPPED),
  };
}

const STOPPED = "stopped by who looks";

/** Checks run one after the other: only the last one can be running. */
function addProgress(checks: readonly CheckProgress[], progress: CheckProgress): readonly CheckProgress[] {
  const last = checks.at(-1);
  const isSame = last?.check === progress.check && last.findings === undefined;
  return [...(isSame ? checks.slice(0, -1) : checks), progress];
}

export function Doctor() {
  const warehouse = useWarehouse();
  const [hasFiles, setHasFiles] = useState(false);
  const { state, checks, error, at, examine, stop } = useExamination(warehouse, hasFiles);
  const isRunning = state === "running";
  return (
    <div className="body">
      <title>Doctor · duckicelake</title>
      <Head title="Doctor" comment={`Examines the database, the lake, tables and files of ${warehouse}.`}>
        <CheckField name="Look for every data file, too" isOn={hasFiles} change={setHasFiles} />
        <button type="button" className="button" onClick={isRunning ? stop : examine}>
          {isRunning ? "Stop" : "Examine again"}
        </button>
      </Head>
      {error ? <Trouble error={error} retry={examine} /> : <Outcome state={state} checks={checks} at={at} />}
      {checks.length > 0 ? (
        <Card title="Checks">
          <ul className="findings" aria-label="Checks" aria-busy={isRunning}>
            {checks.map((one, place) => (
              <CheckItem key={place} of={one} isStopped={!isRunning} />
            ))}
          </ul>
        </Card>
      ) : null}
      {isRunning ? null : (
        <Card title="The same by command">
          <div className="inside">
            <Code
              text={writeCommand("doctor", warehouse, [], { "no-files": hasFiles ? undefined : true })}
              what="the command"
            />
          </div>
        </Card>
      )}
    </div>
  );
}

function Outcome({ state, checks, at }: { state: State; checks: readonly CheckProgress[]; at: number }) {
  const done = checks.filter(({ findings }) => findings !== undefined);
  const bad = done.flatMap(({ findings }) => findings ?? []).filter(({ ok }) => !ok).length;
  const found = bad > 0 ? `${plural(bad, "thing")} to be done` : "nothing to be done";
  return (
    <p className={bad > 0 ? "banner bad" : state === "done" ? "banner good" : "banner"} role="status">
      {state === "running" ? `Examining: ${plural(done.length, "check")} so far, ${found}.` : null}
      {state === "stopped" ? `Stopped after ${plural(done.length, "check")}: ${found} in these.` : null}
      {state === "done" ? (
        <>
          {plural(done.length, "check")} found {found}. Examined <Time at={at} />.
        </>
      ) : null}
    </p>
  );
}

function CheckItem({
  of: { check, findings, seconds, done, total },
  isStopped,
}: {
  of: CheckProgress;
  isStopped: boolean;
}) {
  const isBad = findings?.some(({ ok }) => !ok);
  const files = done === undefined ? "" : ` ${formatCount(done)} of ${formatCount(total ?? 0)}`;
  const state =
    findings !== undefined ? `${seconds.toFixed(seconds < 10 ? 2 : 0)} s` : isStopped ? "stopped" : `running…${files}`;
  return (
    <li className={isBad ? "bad" : findings ? "good" : "quiet"}>
      {isBad ? (
        <TriangleAlert className="icon minus" aria-label="To be done" />
      ) : findings ? (
        <Check className="icon plus" aria-label="In order" />
      ) : (
        <LoaderCircle className={isStopped ? "icon" : "icon turning"} aria-hidden />
      )}
      <div className="stack none">
        <span className="check-name">
          <strong>{check}</strong> <span className="quiet">{state}</span>
        </span>
        {(findings ?? []).slice(0, SHOWN).map((finding) => (
          <FindingText key={`${finding.name} ${finding.detail}`} of={finding} check={check} />
        ))}
        {findings && findings.length > SHOWN ? (
          <span className="quiet">And {formatCount(findings.length - SHOWN)} more: the command below lists all.</span>
        ) : null}
      </div>
    </li>
  );
}

function FindingText({ of: { name, ok, detail, advice }, check }: { of: Finding; check: string }) {
  return (
    <div className="finding">
      <span className={ok ? "quiet breaks" : "breaks"}>
        {name === check ? null : <strong>{name}: </strong>}
        {detail}
      </span>
      {advice ? <p className="breaks">{advice}</p> : null}
    </div>
  );
}
