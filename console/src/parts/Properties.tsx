import { Copy } from "./Copy.tsx";

export function Properties({ of }: { of: Readonly<Record<string, string>> }) {
  return (
    <div className="scroll cards">
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Value</th>
            <th scope="col">
              <span className="hidden-text">Copy</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(of)
            .sort(([a], [b]) => a.localeCompare(b))
            .map(([name, value]) => (
              <tr key={name}>
                <td className="mono">
                  <span className="breaks">{name}</span>
                </td>
                <td className="mono breaks">{value}</td>
                <td className="number">
                  <Copy text={value} what={`the value of ${name}`} />
                </td>
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  );
}
