// A storage profile: an S3 server, a folder, and a key that is never shown again.
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { CheckField, ChoiceField, TextField } from "../../parts/fields.tsx";

const VENDING = [
  ["", "As the settings choose"],
  ["sts", "Keys of STS, for each table"],
  ["remote-signing", "Signed requests"],
  ["none", "None"],
] as const;

export function CreateStorageProfile({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [root, setRoot] = useState("");
  const [endpoint, setEndpoint] = useState("");
  const [region, setRegion] = useState("");
  const [key, setKey] = useState("");
  const [secret, setSecret] = useState("");
  const [vending, setVending] = useState<(typeof VENDING)[number][0]>("");
  const [role, setRole] = useState("");
  const [isPathStyle, setPathStyle] = useState(false);
  const [isAmbient, setAmbient] = useState(false);
  const keys = isAmbient ? {} : { "access-key-id": key, "secret-access-key": secret };
  const given = {
    ...(endpoint ? { endpoint } : {}),
    ...(region ? { region } : {}),
    ...(vending ? { vending } : {}),
    ...(role ? { "role-arn": role } : {}),
    ...(isPathStyle ? { "path-style": true } : {}),
  };
  const command = writeCommand(
    "storage-profile create",
    FIRST_WAREHOUSE,
    [name || "NAME", root || "s3://BUCKET/FOLDER"],
    {
      endpoint,
      region,
      "path-style": isPathStyle,
      vending,
      "role-arn": role,
      ambient: isAmbient,
      "access-key-id": isAmbient ? "" : key || "KEY",
    },
  );
  const body = { name, root, ...given, ...keys };
  return (
    <ActDialog
      title="Create a storage profile"
      verb="Create"
      isReady={name !== "" && root !== "" && (isAmbient || (key !== "" && secret !== ""))}
      request={{ method: "POST", path: "/management/v1/storage-profiles", warehouse: FIRST_WAREHOUSE, body }}
      shown={isAmbient ? body : { ...body, "secret-access-key": "SECRET" }}
      command={isAmbient ? command : `${command} < secret`}
      close={close}
    >
      <p>
        Warehouses name the profile when they are created. Its key is kept encrypted in Postgres, and never shown again.
      </p>
      <div className="row top">
        <TextField name="Name" value={name} change={setName} isFirst />
        <TextField name="Folder" placeholder="s3://bucket/lakes" value={root} change={setRoot} isMono />
      </div>
      <div className="row top">
        <TextField name="S3 server" hint="None: Amazon’s." value={endpoint} change={setEndpoint} isMono />
        <TextField name="Region" value={region} change={setRegion} isMono />
      </div>
      <CheckField name="Put the bucket into the path" isOn={isPathStyle} change={setPathStyle} />
      <CheckField
        name="Use the server’s own credentials"
        hint="Where its settings allow that."
        isOn={isAmbient}
        change={setAmbient}
      />
      {isAmbient ? null : (
        <div className="row top">
          <TextField name="Key id" value={key} change={setKey} isMono />
          <TextField name="Secret" value={secret} change={setSecret} isSecret />
        </div>
      )}
      <div className="row top">
        <ChoiceField name="Keys for clients" value={vending} options={VENDING} change={setVending} />
        <TextField name="Role for these keys" value={role} change={setRole} isMono />
      </div>
    </ActDialog>
  );
}
