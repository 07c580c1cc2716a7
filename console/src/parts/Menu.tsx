import { ChevronDown } from "lucide-react";
import { useRef } from "react";

export interface Item {
  readonly name: string;
  readonly isDangerous?: boolean;
  readonly choose: () => void;
}

/** A list of acts behind a button. */
export function Menu({ name, items }: { name: string; items: readonly Item[] }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  return (
    <details
      className="menu"
      ref={menu}
      onBlur={({ relatedTarget }) => {
        if (!menu.current?.contains(relatedTarget)) close();
      }}
      onKeyDown={({ key }) => {
        if (key === "Escape") close();
      }}
    >
      <summary className="button">
        {name} <ChevronDown className="icon" aria-hidden />
      </summary>
      <ul>
        {items.map((item) => (
          <li key={item.name}>
            <button
              type="button"
              className={item.isDangerous ? "minus" : ""}
              onClick={() => {
                close();
                item.choose();
              }}
            >
              {item.name}
            </button>
          </li>
        ))}
      </ul>
    </details>
  );
}
