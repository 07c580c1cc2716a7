// Who the caller is for the server, what it may do, and its own tokens.
import { useQuery } from "@tanstack/react-query";
import { callerQuery } from "../../api/queries.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Facts } from "../../parts/Facts.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { OwnTokens } from "./Secrets.tsx";

export function You() {
  const warehouse = useWarehouse();
  const query = useQuery(callerQuery(warehouse));
  return (
    <div className="body">
      <title>You · duckicelake</title>
      <Head title="You" comment={`Who you are for this server, and what you may do in ${warehouse}.`} />
      <Loaded query={query}>
        {(caller) => (
          <>
            <Card title={caller["is-authenticated"] ? caller.principal : "No login needed"}>
              <Facts
                of={[
                  ["Groups", <Names of={caller.groups} />],
                  ["Roles", <Names of={caller.roles} />],
                  ["Scopes of your token", <Names of={caller.scopes} />],
                  [
                    "Who decides",
                    caller["grants-on"]
                      ? "scopes and grants together"
                      : "scopes alone: grants are off in this warehouse",
                  ],
                  ["What you may do everywhere in it", <Names of={caller.actions} />],
                ]}
              />
            </Card>
            {caller["is-authenticated"] ? (
              <OwnTokens name={caller.principal} />
            ) : (
              <Card title="Tokens and secrets of yours">
                <Empty title="This server has no logins">So tokens of it would give nothing.</Empty>
              </Card>
            )}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Names({ of }: { of: readonly string[] }) {
  if (of.length === 0) return <span className="quiet">none</span>;
  return (
    <span className="tags">
      {of.map((name) => (
        <span key={name} className="tag">
          {name}
        </span>
      ))}
    </span>
  );
}
