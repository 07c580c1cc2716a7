import { Card } from "../../parts/Card.tsx";
import { Copy } from "../../parts/Copy.tsx";
import { Empty } from "../../parts/Notice.tsx";
import { Properties } from "../../parts/Properties.tsx";
import type { TablePageProps } from "./Table.tsx";

export function PropertiesPage({ metadata }: TablePageProps) {
  const properties = metadata.properties ?? {};
  const facts = [
    ["Location", metadata.location],
    ["UUID", metadata["table-uuid"]],
  ] as const;
  return (
    <>
      <Card title="What it is">
        <dl className="inside facts">
          {facts.map(([name, value]) => (
            <div key={name} className="fact">
              <dt>{name}</dt>
              <dd className="mono">
                {value} <Copy text={value} what={name.toLowerCase()} />
              </dd>
            </div>
          ))}
        </dl>
      </Card>
      <Card title="Properties">
        {Object.keys(properties).length === 0 ? (
          <Empty title="The table has no properties" />
        ) : (
          <Properties of={properties} />
        )}
      </Card>
    </>
  );
}
