// A storage profile: a folder in a store, and a key that is never shown again. The folder's scheme says which store it is.
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { CheckField, ChoiceField, TextField } from "../../parts/fields.tsx";
import { FieldTrouble } from "../../parts/refusal.tsx";

const VENDING = [
  ["", "As the settings choose"],
  ["sts", "Keys of STS, for each table"],
  ["remote-signing", "Signed requests"],
  ["none", "None"],
] as const;

const ENCRYPTION = [
  ["", "As the bucket says"],
  ["s3", "Keys of S3"],
  ["kms", "A key of KMS"],
  ["dsse-kms", "A key of KMS, twice"],
] as const;

const BUCKET_KEY = [
  ["", "As the bucket says"],
  ["yes", "Yes: fewer calls of KMS"],
  ["no", "No"],
] as const;

type Choice<T extends readonly (readonly [string, string])[]> = T[number][0];
type Store = "s3" | "google" | "azure";

/** What a store calls a key and its secret. */
const KEYS: Readonly<Record<Store, readonly [key: string, secret: string]>> = {
  s3: ["Key id", "Secret"],
  google: ["Service account", "Its key, as JSON"],
  azure: ["Account, or tenant/client", "Its key, or the client’s secret"],
};

/** What the server's refusals are about, the narrower words first. */
const PLACES = {
  endpoint: /endpoint/i,
  region: /region/i,
  role: /role/i,
  kms: /kms-key|bucket-key/i,
  sse: /\bsse\b/i,
  vending: /vending/i,
  keys: /access-key|credentials|store keys/i,
  root: /root|folder|bucket|location/i,
  name: /name/i,
};

export function findStore(root: string): Store {
  if (/^gc?s:/.test(root)) return "google";
  return /^(?:abfss?|wasbs?|azure?):/.test(root) ? "azure" : "s3";
}

const INITIAL = {
  name: "",
  root: "",
  key: "",
  secret: "",
  isAmbient: false,
  endpoint: "",
  region: "",
  isPathStyle: false,
  vending: "" as Choice<typeof VENDING>,
  role: "",
  sse: "" as Choice<typeof ENCRYPTION>,
  kmsKey: "",
  bucketKey: "" as Choice<typeof BUCKET_KEY>,
  isRequesterPays: false,
};
type Profile = typeof INITIAL;

const isKms = (sse: string): boolean => sse === "kms" || sse === "dsse-kms";

/** What of it is sent, by the names that the route and the command share. */
function optionsOf(profile: Profile): Readonly<Record<string, string | boolean>> {
  const { endpoint, region, vending, role, sse, kmsKey, isPathStyle, isRequesterPays } = profile;
  const bucketKey = sse === "kms" && profile.bucketKey ? { "bucket-key": profile.bucketKey === "yes" } : {};
  const ofS3 = {
    endpoint,
    region,
    "path-style": isPathStyle,
    "role-arn": role,
    sse,
    "kms-key": isKms(sse) ? kmsKey : "",
    "requester-pays": isRequesterPays,
  };
  const given = { vending, ...(findStore(profile.root) === "s3" ? ofS3 : {}) };
  const chosen = Object.entries(given).filter(([, value]) => value !== "" && value !== false);
  return { ...Object.fromEntries(chosen), ...(findStore(profile.root) === "s3" ? bucketKey : {}) };
}

function commandOf({ name, root, key, isAmbient }: Profile, options: ReturnType<typeof optionsOf>): string {
  const { "bucket-key": bucketKey, ...rest } = options;
  const command = writeCommand(
    "storage-profile create",
    FIRST_WAREHOUSE,
    [name || "NAME", root || "s3://BUCKET/FOLDER"],
    {
      ...rest,
      "bucket-key": bucketKey === true,
      "no-bucket-key": bucketKey === false,
      ambient: isAmbient,
      "access-key-id": isAmbient ? "" : key || "KEY",
    },
  );
  return isAmbient ? command : `${command} < secret`;
}

export function CreateStorageProfile({ close }: { close: () => void }) {
  const [profile, setProfile] = useState(INITIAL);
  const change = (changed: Partial<Profile>) => setProfile({ ...profile, ...changed });
  const { name, root, key, secret, isAmbient } = profile;
  const options = optionsOf(profile);
  const body = { name, root, ...options, ...(isAmbient ? {} : { "access-key-id": key, "secret-access-key": secret }) };
  const store = findStore(root);
  const [keyName, secretName] = KEYS[store];
  return (
    <ActDialog
      title="Create a storage profile"
      verb="Create"
      isReady={name !== "" && root !== "" && (isAmbient || (key !== "" && secret !== ""))}
      request={{ method: "POST", path: "/management/v1/storage-profiles", warehouse: FIRST_WAREHOUSE, body }}
      shown={isAmbient ? body : { ...body, "secret-access-key": "SECRET" }}
      command={commandOf(profile, options)}
      places={PLACES}
      close={close}
    >
      <p>
        Warehouses name the profile when they are created. Its key is kept encrypted in Postgres, and never shown again.
      </p>
      <div className="row top">
        <TextField name="Name" value={name} change={(text) => change({ name: text })} at="name" isFirst isRequired />
        <TextField
          name="Folder"
          hint="s3://, gs:// or abfss://"
          placeholder="s3://bucket/lakes"
          value={root}
          change={(text) => change({ root: text.trim() })}
          at="root"
          isMono
          isRequired
        />
      </div>
      <CheckField
        name="Use the server’s own credentials"
        hint="Where its settings allow that."
        isOn={isAmbient}
        change={(isOn) => change({ isAmbient: isOn })}
      />
      {isAmbient ? null : (
        <div className="row top">
          <TextField name={keyName} value={key} change={(text) => change({ key: text })} isMono isRequired />
          <TextField name={secretName} value={secret} change={(text) => change({ secret: text })} isSecret isRequired />
        </div>
      )}
      <FieldTrouble at="keys" />
      <ChoiceField
        name="Keys for clients"
        value={profile.vending}
        options={VENDING}
        change={(vending) => change({ vending })}
        at="vending"
      />
      {store === "s3" ? <Amazon profile={profile} change={change} /> : null}
    </ActDialog>
  );
}

/** What S3 and its like have, and other stores haven't. */
function Amazon({ profile, change }: { profile: Profile; change: (changed: Partial<Profile>) => void }) {
  return (
    <>
      <div className="row top">
        <TextField
          name="S3 server"
          hint="Empty: Amazon’s."
          value={profile.endpoint}
          change={(endpoint) => change({ endpoint })}
          at="endpoint"
          isMono
        />
        <TextField name="Region" value={profile.region} change={(region) => change({ region })} at="region" isMono />
      </div>
      <CheckField
        name="Put the bucket into the path"
        hint="As MinIO and most others than Amazon want it."
        isOn={profile.isPathStyle}
        change={(isPathStyle) => change({ isPathStyle })}
      />
      <TextField
        name="Role for keys of clients"
        hint="Its ARN. Empty: that of the settings."
        value={profile.role}
        change={(role) => change({ role })}
        at="role"
        isMono
      />
      <details>
        <summary>Encryption and costs</summary>
        <div className="stack">
          <ChoiceField
            name="Encryption of files"
            value={profile.sse}
            options={ENCRYPTION}
            change={(sse) => change({ sse })}
            at="sse"
          />
          {isKms(profile.sse) ? (
            <>
              <TextField
                name="ARN of the key"
                hint="Clients need it, too. Empty: Amazon’s own key."
                placeholder="arn:aws:kms:…"
                value={profile.kmsKey}
                change={(kmsKey) => change({ kmsKey })}
                at="kms"
                isMono
              />
              {profile.sse === "kms" ? (
                <ChoiceField
                  name="Key of the bucket"
                  value={profile.bucketKey}
                  options={BUCKET_KEY}
                  change={(bucketKey) => change({ bucketKey })}
                />
              ) : null}
            </>
          ) : null}
          <CheckField
            name="The requester pays"
            hint="Requests accept their costs, as some buckets of others want it."
            isOn={profile.isRequesterPays}
            change={(isRequesterPays) => change({ isRequesterPays })}
          />
        </div>
      </details>
    </>
  );
}
