// Who is in a group or role.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { membersQuery, principalsQuery } from "../../api/administration.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card } from "../../parts/Card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { PrincipalLink } from "../../parts/links.tsx";
import { LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";

type Container = "group" | "role";

export function Members({ name, kind }: { name: string; kind: Container }) {
  const query = useInfiniteQuery(membersQuery(name));
  const [isAdding, setAdding] = useState(false);
  const [removed, setRemoved] = useState<string | null>(null);
  return (
    <Card
      title="Members"
      aside={
        <button type="button" className="button small" onClick={() => setAdding(true)}>
          Add a member
        </button>
      }
    >
      <Loaded query={query} lines={3}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.members);
          if (all.length === 0) return <Empty title="It has no members" />;
          return (
            <LongTable
              name="Members"
              rows={all}
              columns={[
                { name: "Name", show: (member) => <PrincipalLink name={member} /> },
                {
                  name: "Remove",
                  kind: "hidden",
                  show: (member) => (
                    <button
                      type="button"
                      className="button small"
                      aria-label={`Remove ${member}`}
                      onClick={() => setRemoved(member)}
                    >
                      Remove
                    </button>
                  ),
                },
              ]}
              keyOf={(member) => member}
              reachEnd={() => (query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined)}
            />
          );
        }}
      </Loaded>
      {isAdding ? <Add name={name} kind={kind} close={() => setAdding(false)} /> : null}
      {removed === null ? null : <Remove name={name} kind={kind} member={removed} close={() => setRemoved(null)} />}
    </Card>
  );
}

function addRequest(container: string, member: string): Request {
  return {
    method: "POST",
    path: "/management/v1/principals/{principal}/members",
    warehouse: FIRST_WAREHOUSE,
    values: { principal: container },
    body: { member },
  };
}

function useNames(kinds: readonly string[]): readonly string[] {
  const { data } = useInfiniteQuery(principalsQuery());
  const all = data?.pages.flatMap((page) => page.principals) ?? [];
  return all.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
}

function Add({ name, kind, close }: { name: string; kind: Container; close: () => void }) {
  const [member, setMember] = useState("");
  const offered = useNames(kind === "group" ? ["user", "service"] : ["user", "service", "group", "role"]);
  return (
    <ActDialog
      title={`Add a member to ${name}`}
      verb="Add"
      isReady={member !== ""}
      request={addRequest(name, member)}
      command={writeCommand(`${kind} members add`, FIRST_WAREHOUSE, [name, member || "MEMBER"])}
      places={{ member: /./ }}
      close={close}
    >
      <p>
        {kind === "group"
          ? "The user or service account has what the group was granted, within a second."
          : "The member has what the role was granted, within a second; members of a group or role, too."}
      </p>
      <TextField name="Member" value={member} change={setMember} offered={offered} at="member" isFirst isRequired />
    </ActDialog>
  );
}

/** Puts a principal into a group or role. */
export function Join({ member, close }: { member: string; close: () => void }) {
  const [container, setContainer] = useState("");
  const { data } = useInfiniteQuery(principalsQuery());
  const found = data?.pages.flatMap((page) => page.principals).find(({ name }) => name === container);
  const kind = found?.kind === "group" ? "group" : "role";
  const offered = useNames(["group", "role"]);
  return (
    <ActDialog
      title={`Put ${member} into a group or role`}
      verb="Put it there"
      isReady={container !== ""}
      request={addRequest(container, member)}
      command={writeCommand(`${kind} members add`, FIRST_WAREHOUSE, [container || "ROLE", member])}
      places={{ container: /./ }}
      close={close}
    >
      <p>It then has what that was granted, within a second.</p>
      <TextField
        name="Group or role"
        value={container}
        change={setContainer}
        offered={offered}
        at="container"
        isFirst
        isRequired
      />
    </ActDialog>
  );
}

function Remove({ name, kind, member, close }: { name: string; kind: Container; member: string; close: () => void }) {
  return (
    <ActDialog
      title={`Remove ${member} from ${name}`}
      verb="Remove"
      isDangerous
      request={{
        method: "DELETE",
        path: "/management/v1/principals/{principal}/members/{member}",
        warehouse: FIRST_WAREHOUSE,
        values: { principal: name, member },
      }}
      command={writeCommand(`${kind} members remove`, FIRST_WAREHOUSE, [name, member])}
      close={close}
    >
      <p>
        {member} loses what {name} was granted, within a second, unless another grant gives it. It stays registered.
      </p>
    </ActDialog>
  );
}
