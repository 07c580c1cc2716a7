import { Link } from "@tanstack/react-router";
import { useWarehouse } from "../../shell/Frame.tsx";

export function PeopleTabs() {
  const warehouse = useWarehouse();
  return (
    <nav className="tabs" aria-label="People">
      <Link
        to="/w/$warehouse/people"
        params={{ warehouse }}
        activeProps={{ className: "active" }}
        activeOptions={{ exact: true, includeSearch: false }}
      >
        Principals
      </Link>
      <Link to="/w/$warehouse/issuers" params={{ warehouse }} activeProps={{ className: "active" }}>
        Issuers
      </Link>
    </nav>
  );
}
