// A route: its parameters, bodies and answers; and what it answers here, if it changes nothing.
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { send } from "../../api/client.ts";
import type { paths } from "../../api/openapi";
import type { ApiDescription, Operation, Parameter, Schema } from "../../api/operation.ts";
import { Card } from "../../parts/Card.tsx";
import { writeCurl } from "../../parts/command.ts";
import { Code } from "../../parts/Copy.tsx";
import { TextField } from "../../parts/fields.tsx";
import { formatBytes } from "../../parts/format.ts";
import { Trouble } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { Method, Path, type Route } from "./ApiReference.tsx";

interface Described {
  readonly description: ApiDescription;
  readonly route: Route;
}

export function RouteDetails({ description, route }: Described) {
  const { method, path, operation } = route;
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return (
    <div className="stack">
      <Card>
        <div className="inside stack">
          <h2 className="row">
            <Method name={method} /> <Path of={path} />
          </h2>
          {operation.description ? <p>{operation.description}</p> : null}
        </div>
      </Card>
      <Parameters of={operation.parameters ?? []} />
      {body ? (
        <Card title="Body">
          <div className="inside">
            <SchemaTree description={description} schema={body} />
          </div>
        </Card>
      ) : null}
      <Answers description={description} operation={operation} />
      {method === "get" ? <Try route={route} /> : null}
    </div>
  );
}

function Parameters({ of }: { of: readonly Parameter[] }) {
  if (of.length === 0) return null;
  return (
    <Card title="Parameters">
      <div className="scroll cards" tabIndex={0} role="group" aria-label="Parameters">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Where</th>
              <th scope="col">Type</th>
              <th scope="col">What it says</th>
            </tr>
          </thead>
          <tbody>
            {of.map((parameter) => (
              <tr key={`${parameter.in} ${parameter.name}`}>
                <td>
                  <code>{parameter.name}</code> {parameter.required ? <span className="tag">required</span> : null}
                </td>
                <td data-name="Where">{parameter.in}</td>
                <td className="mono" data-name="Type">
                  {parameter.schema ? nameType(parameter.schema) : ""}
                </td>
                <td className="quiet">{parameter.description}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Answers({ description, operation }: { description: ApiDescription; operation: Operation }) {
  const answers = Object.entries(operation.responses ?? {});
  return (
    <Card title="Answers">
      <div className="inside stack">
        {answers.map(([status, answer]) => {
          const schema = answer.content?.["application/json"]?.schema;
          return (
            <details key={status} open={status.startsWith("2")}>
              <summary>
                <strong>{status}</strong> <span className="quiet">{answer.description}</span>
              </summary>
              {schema ? <SchemaTree description={description} schema={schema} /> : null}
            </details>
          );
        })}
      </div>
    </Card>
  );
}

const DEEPEST = 6;
const PREFIX = "#/components/schemas/";

function resolve(description: ApiDescription, schema: Schema): Schema {
  const name = schema.$ref?.startsWith(PREFIX) ? schema.$ref.slice(PREFIX.length) : null;
  return name === null ? schema : (description.components?.schemas?.[name] ?? schema);
}

function nameType(schema: Schema): string {
  if (schema.$ref) return schema.$ref.replace(PREFIX, "");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(nameType).join(" | ");
  if (schema.type === "array") return `${schema.items ? nameType(schema.items) : "any"}[]`;
  return schema.type ?? "any";
}

/** The schemas that a type consists of and that have members to show: of a list its items, of a choice each of it. */
function listParts(schema: Schema): readonly Schema[] {
  const inner = schema.anyOf ?? schema.oneOf ?? (schema.items ? [schema.items] : null);
  if (inner) return inner.flatMap(listParts);
  return schema.$ref || schema.properties ? [schema] : [];
}

/** Members of a body, those of members when they are opened. */
function SchemaTree({
  description,
  schema,
  depth = 0,
}: {
  description: ApiDescription;
  schema: Schema;
  depth?: number;
}): ReactNode {
  const parts = listParts(schema).map((part) => ({ name: nameType(part), schema: resolve(description, part) }));
  if (parts.length === 0) return <code>{nameType(schema)}</code>;
  return parts.map(({ name, schema: part }, place) => (
    <div key={place} className="schema">
      <p className="small quiet">
        <code>{name}</code> {part.description}
      </p>
      <ul>
        {Object.entries(part.properties ?? {}).map(([member, type]) => (
          <li key={member}>
            <code>{member}</code> <span className="mono quiet breaks">{nameType(type)}</span>{" "}
            {part.required?.includes(member) ? <span className="tag">required</span> : null}
            {type.description ? <span className="small quiet"> {type.description}</span> : null}
            {depth < DEEPEST && listParts(type).length > 0 ? (
              <Inner description={description} schema={type} depth={depth + 1} name={member} />
            ) : null}
          </li>
        ))}
      </ul>
    </div>
  ));
}

function Inner({ name, ...of }: { name: string; description: ApiDescription; schema: Schema; depth: number }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary className="small">members of {name}</summary>
      {isOpen ? <SchemaTree {...of} /> : null}
    </details>
  );
}

interface Tried {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

const MOST_SHOWN = 200_000;

function formatBody(text: string, type: string): string {
  if (!type.includes("json")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Try({ route: { path, operation } }: { route: Route }) {
  const warehouse = useWarehouse();
  const fields = (operation.parameters ?? []).filter((one) => one.in === "path" || one.in === "query");
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const valuesOf = (place: string) =>
    Object.fromEntries(fields.filter((one) => one.in === place).map(({ name }) => [name, values[name] ?? ""]));
  const asked = { warehouse, path: valuesOf("path"), query: valuesOf("query") };
  // Without a token of its own a list has everything; an empty one asks for its first page.
  const { pageToken, ...rest } = asked.query as Record<string, string>;
  const query = pageToken ? asked.query : rest;
  const isReady = fields.every(({ name, required }) => !required || values[name]);
  const request = useMutation({
    mutationFn: async (): Promise<Tried> => {
      const answer = await send("get", path as never, { ...asked, query } as never);
      const type = answer.headers.get("Content-Type") ?? "";
      return { status: answer.status, type, text: await answer.text() };
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isReady && !request.isPending) request.mutate();
  };
  const tried = request.data;
  return (
    <Card title="Try it">
      <form className="inside stack" onSubmit={submit}>
        {fields.map(({ name, required, description }) => (
          <TextField
            key={name}
            name={name}
            isRequired={required ?? false}
            hint={description}
            value={values[name] ?? ""}
            change={(value) => setValues({ ...values, [name]: value })}
            isMono
          />
        ))}
        <Code
          text={writeCurl({ method: "GET", path: path as keyof paths, warehouse, values: asked.path, query })}
          what="the request"
        />
        <p className="row">
          <button className="button primary" disabled={!isReady || request.isPending}>
            {request.isPending ? "Asking…" : "Ask"}
          </button>
        </p>
        {request.error ? <Trouble error={request.error} /> : null}
        {tried ? (
          <>
            <p role="status">
              <span className="tag good">{tried.status}</span>{" "}
              <span className="quiet">
                {tried.type}, {formatBytes(tried.text.length)}
              </span>
            </p>
            <div className="answer">
              <Code text={formatBody(tried.text, tried.type).slice(0, MOST_SHOWN)} what="the answer" />
            </div>
          </>
        ) : null}
      </form>
    </Card>
  );
}
