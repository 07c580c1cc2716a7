// Columns as rows of fields: named, typed, commented, moved, added and removed, those within structs too.
import { ArrowDown, ArrowUp, Plus, Trash2, Undo2 } from "lucide-react";
import { useId } from "react";
import { changeNode, type ColumnNode, moveNode, newNode, removeNode } from "../api/columns.ts";
import { PRIMITIVES } from "../api/types.ts";

interface EditorProps {
  readonly nodes: readonly ColumnNode[];
  readonly change: (nodes: readonly ColumnNode[]) => void;
  readonly troubles: ReadonlyMap<string, string>;
}

export function ColumnEditor({ nodes, change, troubles }: EditorProps) {
  const types = useId();
  return (
    <div className="stack tight">
      <div className="scroll editor-rows" tabIndex={0} role="group" aria-label="Columns to edit">
        <table className="edit">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Type</th>
              <th scope="col">Not null</th>
              <th scope="col">Default</th>
              <th scope="col">Comment</th>
              <th scope="col">
                <span className="hidden-text">Move, remove</span>
              </th>
            </tr>
          </thead>
          <tbody>
            <Rows nodes={nodes} all={nodes} depth={0} place="" change={change} troubles={troubles} types={types} />
          </tbody>
        </table>
      </div>
      <datalist id={types}>
        {[...PRIMITIVES, "list<string>", "map<string, string>", "struct<a: string, b: int>"].map((type) => (
          <option key={type} value={type} />
        ))}
      </datalist>
      <div>
        <button type="button" className="button small" onClick={() => change([...nodes, newNode()])}>
          <Plus className="icon" aria-hidden /> Add a column
        </button>
      </div>
    </div>
  );
}

interface RowsProps extends EditorProps {
  readonly all: readonly ColumnNode[];
  readonly depth: number;
  readonly place: string;
  readonly types: string;
}

function Rows({ nodes, place, ...rest }: RowsProps) {
  return nodes.map((node, index) => {
    const here = `${place}${index + 1}`;
    return (
      <Row
        key={node.key}
        node={node}
        place={here}
        isFirst={index === 0}
        isLast={index === nodes.length - 1}
        {...rest}
      />
    );
  });
}

interface RowProps extends Omit<RowsProps, "nodes"> {
  readonly node: ColumnNode;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

function Row({ node, place, isFirst, isLast, ...rest }: RowProps) {
  const { all, depth, change, troubles, types } = rest;
  const set = (values: Partial<ColumnNode>) => change(changeNode(all, node.key, (found) => ({ ...found, ...values })));
  const trouble = troubles.get(node.key);
  const label = (what: string) => `${what} of column ${place}`;
  const isOff = node.isGone;
  return (
    <>
      <tr className={isOff ? "gone" : node.id === null && all.some(({ id }) => id !== null) ? "fresh" : ""}>
        <td style={depth > 0 ? { paddingLeft: 12 + depth * 18 } : undefined}>
          <input
            className="mono"
            aria-label={label("Name")}
            aria-invalid={trouble ? true : undefined}
            value={node.name}
            disabled={isOff || node.isFixed}
            autoFocus={node.id === null && !node.name}
            spellCheck={false}
            onChange={({ target }) => set({ name: target.value })}
          />
          {trouble ? (
            <p className="field-trouble" role="alert">
              {trouble}
            </p>
          ) : null}
        </td>
        <td>
          {node.kind === "plain" ? (
            <input
              className="mono"
              aria-label={label("Type")}
              list={types}
              value={node.type}
              disabled={isOff}
              spellCheck={false}
              onChange={({ target }) => set({ type: target.value })}
            />
          ) : (
            <span className="mono quiet">{node.kind}</span>
          )}
        </td>
        <td>
          <input
            type="checkbox"
            aria-label={label("Not null")}
            checked={node.isRequired}
            disabled={isOff || node.isFixed}
            onChange={({ target }) => set({ isRequired: target.checked })}
          />
        </td>
        <td>
          {node.id === null ? (
            <input
              className="mono short"
              aria-label={label("Default")}
              value={node.standard}
              spellCheck={false}
              onChange={({ target }) => set({ standard: target.value })}
            />
          ) : null}
        </td>
        <td>
          {node.isFixed ? null : (
            <input
              aria-label={label("Comment")}
              value={node.doc}
              disabled={isOff}
              onChange={({ target }) => set({ doc: target.value })}
            />
          )}
        </td>
        <td className="nowrap">
          <RowButtons node={node} place={place} isFirst={isFirst} isLast={isLast} {...rest} />
        </td>
      </tr>
      {isOff ? null : <Rows nodes={node.children} {...rest} depth={depth + 1} place={`${place}.`} />}
    </>
  );
}

function RowButtons({ node, place, isFirst, isLast, all, change }: RowProps) {
  const set = (values: Partial<ColumnNode>) => change(changeNode(all, node.key, (found) => ({ ...found, ...values })));
  const drop = () => (node.id === null ? change(removeNode(all, node.key)) : set({ isGone: !node.isGone }));
  const acts = [
    ...(node.kind === "struct" && !node.isGone
      ? [
          {
            name: `Add a column inside of column ${place}`,
            Icon: Plus,
            isOff: false,
            act: () => set({ children: [...node.children, newNode()] }),
          },
        ]
      : []),
    ...(node.isFixed
      ? []
      : [
          {
            name: `Move column ${place} up`,
            Icon: ArrowUp,
            isOff: isFirst,
            act: () => change(moveNode(all, node.key, -1)),
          },
          {
            name: `Move column ${place} down`,
            Icon: ArrowDown,
            isOff: isLast,
            act: () => change(moveNode(all, node.key, 1)),
          },
          {
            name: node.isGone ? `Keep column ${place}` : `Remove column ${place}`,
            Icon: node.isGone ? Undo2 : Trash2,
            isOff: false,
            act: drop,
          },
        ]),
  ];
  return acts.map(({ name, Icon, isOff, act }) => (
    <button
      key={name}
      type="button"
      className="button only-icon"
      aria-label={name}
      title={name}
      disabled={isOff}
      onClick={act}
    >
      <Icon className="icon" aria-hidden />
    </button>
  ));
}
