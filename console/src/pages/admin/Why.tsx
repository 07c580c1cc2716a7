// Why a principal may do something, or may not: what decides, one step after the other.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { ArrowRight, Check, Minus, TriangleAlert, X } from "lucide-react";
import { type FormEvent, Fragment, type ReactNode, useState } from "react";
import { type Decision, decisionQuery, PRIVILEGES, type Question } from "../../api/governance.ts";
import { readObject } from "../../api/objects.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { writeCommand, writeCurl } from "../../parts/command.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { PrincipalLink } from "../../parts/links.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { ObjectField, ObjectLink, usePrincipalNames } from "./objects.tsx";

const ACTIONS = PRIVILEGES.map((privilege) => [privilege, privilege] as const);

export function Why() {
  const warehouse = useWarehouse();
  const { principal = "", action = "select", on = "warehouse" } = useSearch({ from: "/w/$warehouse/why" });
  const question = { principal, action, on };
  return (
    <div className="body">
      <title>Why may she? · duckicelake</title>
      <Head title="Why may she?" comment={`What decides in ${warehouse} whether a principal may do something.`} />
      <Ask key={JSON.stringify(question)} question={question} />
      {principal ? (
        <Answered question={question} />
      ) : (
        <Card>
          <Empty title="Name a principal">
            The answer shows all that decides: scopes, grants and how they came, policies.
          </Empty>
        </Card>
      )}
    </div>
  );
}

function Ask({ question }: { question: Question }) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [principal, setPrincipal] = useState(question.principal);
  const [action, setAction] = useState(question.action as (typeof PRIVILEGES)[number]);
  const [on, setOn] = useState(question.on);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void navigate({ to: "/w/$warehouse/why", params: { warehouse }, search: { principal, action, on } });
  };
  return (
    <form className="row ends" onSubmit={submit}>
      <TextField name="Who" value={principal} change={setPrincipal} offered={usePrincipalNames(warehouse)} />
      <ChoiceField name="May" value={action} options={ACTIONS} change={setAction} />
      <ObjectField warehouse={warehouse} value={on} change={setOn} />
      <button className="button primary">Ask</button>
    </form>
  );
}

function Answered({ question }: { question: Question }) {
  const warehouse = useWarehouse();
  const query = useQuery(decisionQuery(warehouse, question));
  const { principal, action, on } = question;
  return (
    <>
      <Card title="What decides">
        <Loaded query={query} lines={5}>
          {(decision) => <Chain decision={decision} question={question} />}
        </Loaded>
      </Card>
      <Card title="The same by command and by HTTP">
        <div className="inside stack tight">
          <Code text={writeCommand("why", warehouse, [principal, action, on])} what="the command" />
          <Code
            text={writeCurl({
              method: "GET",
              path: "/management/v1/decision",
              warehouse,
              query: { principal, action, on },
            })}
            what="the request"
          />
        </div>
      </Card>
    </>
  );
}

type Outcome = "good" | "bad" | "warn" | "none";

interface Step {
  readonly outcome: Outcome;
  readonly title: ReactNode;
  readonly detail?: ReactNode;
}

const ICONS = { good: Check, bad: X, warn: TriangleAlert, none: Minus } as const;
const SAYS = { good: "Allows", bad: "Refuses", warn: "Limits", none: "Doesn’t count" } as const;

function Chain({ decision, question }: { decision: Decision; question: Question }) {
  const isAllowed = decision["is-allowed"];
  return (
    <ol className="chain">
      {listSteps(decision, question).map(({ outcome, title, detail }, place) => {
        const Icon = ICONS[outcome];
        return (
          <li key={place} className={outcome}>
            <span className="dot">
              <Icon className="icon" aria-hidden />
              <span className="hidden-text">{SAYS[outcome]}: </span>
            </span>
            <div className="stack tight">
              <strong>{title}</strong>
              {detail}
            </div>
          </li>
        );
      })}
      <li className={isAllowed ? "good verdict" : "bad verdict"}>
        <span className="dot">
          {isAllowed ? <Check className="icon" aria-hidden /> : <X className="icon" aria-hidden />}
        </span>
        <strong role="status">
          {question.principal} {isAllowed ? "may" : "may not"} {question.action} on {question.on}
        </strong>
      </li>
    </ol>
  );
}

function listSteps(decision: Decision, { principal, on }: Question): readonly Step[] {
  const isScoped = decision["is-in-scope"];
  const steps: Step[] = [
    decision["is-disabled"]
      ? { outcome: "bad", title: `${principal} is disabled`, detail: <p>It may do nothing until it is enabled.</p> }
      : {
          outcome: "good",
          title: `${principal} is enabled`,
        },
    {
      outcome: isScoped ? "good" : "bad",
      title: isScoped ? "Its scopes cover it" : "Its scopes don’t cover it",
      detail: (
        <p className="quiet">
          All that its tokens can have: <code>{decision.scopes.join(" ") || "none"}</code>
        </p>
      ),
    },
    describeGrants(decision, on),
  ];
  if (typeof decision.outside === "boolean") {
    const verb = decision.outside ? "allows" : "refuses";
    steps.push({ outcome: decision.outside ? "good" : "bad", title: `The outside service ${verb} it` });
  }
  if (decision.definer) {
    steps.push({ outcome: "none", title: `Readers of the view read with the rights of ${decision.definer}` });
  }
  const hiding = decision.policies ?? [];
  if (hiding.length > 0) {
    const outcome = steps.every((step) => step.outcome !== "bad") && !decision["is-allowed"] ? "bad" : "warn";
    steps.push({ outcome, title: "Policies hide parts of it", detail: <Hiding names={hiding} on={on} /> });
  }
  return steps;
}

function describeGrants(decision: Decision, on: string): Step {
  if (!decision["grants-on"]) {
    return { outcome: "none", title: "Grants are off in this warehouse: the scopes decide alone" };
  }
  if (decision.by.length === 0) {
    return {
      outcome: "bad",
      title: "No grant gives it",
      detail: (
        <p className="quiet">Neither to it, nor to a group or role that it is in; neither on this, nor above it.</p>
      ),
    };
  }
  return {
    outcome: "good",
    title: decision.by.length === 1 ? "A grant gives it" : `${decision.by.length} grants give it`,
    detail: (
      <ul className="stack tight">
        {decision.by.map((reason) => (
          <li key={JSON.stringify(reason)}>
            <GrantPath reason={reason} on={on} />
          </li>
        ))}
      </ul>
    ),
  };
}

function GrantPath({ reason: { path, privilege, object }, on }: { reason: Decision["by"][number]; on: string }) {
  const warehouse = useWarehouse();
  const granted = readObject(object);
  const asked = readObject(on);
  return (
    <span className="path">
      {path.map((name, place) => (
        <Fragment key={name}>
          {place > 0 ? (
            <>
              <ArrowRight className="icon" aria-hidden />
              <span className="hidden-text"> in </span>
            </>
          ) : null}
          <span className="node">
            <PrincipalLink name={name} />
          </span>
        </Fragment>
      ))}
      <span className="edge">
        <span className="tag accent">{privilege}</span> on
      </span>
      <span className="node">{granted ? <ObjectLink warehouse={warehouse} object={granted} /> : object}</span>
      {object === on || !asked ? null : (
        <>
          <span className="edge">which holds</span>
          <span className="node">
            <ObjectLink warehouse={warehouse} object={asked} />
          </span>
        </>
      )}
    </span>
  );
}

function Hiding({ names, on }: { names: readonly string[]; on: string }) {
  const warehouse = useWarehouse();
  return (
    <>
      <p className="quiet">
        Metadata, keys and writes are refused to whom they are for. Queries of the server show what filters and masks
        leave.
      </p>
      <p className="breaks">
        {names.join(", ")}:{" "}
        <Link to="/w/$warehouse/policies" params={{ warehouse }} search={{ on }}>
          what they hide
        </Link>
      </p>
    </>
  );
}
