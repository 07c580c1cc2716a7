// CodeMirror in a shadow root: there its styles are sheets of the root, which the policy of the page allows.
import { acceptCompletion, autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { PostgreSQL, sql, type SQLNamespace } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";

const LOOK = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--ink)", backgroundColor: "var(--card)" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--quiet)", border: "none", fontFamily: "var(--mono)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--sunk) 60%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent)",
  },
  ".cm-placeholder": { color: "var(--quiet)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", border: "1px solid var(--rule-strong)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-ink)" },
});

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--view)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.typeName, color: "var(--warn)" },
]);

/** Browsers that replace a selection keep its look by styles of their own, which the policy of the page refuses. */
const REPLACEMENT = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main;
    const typed = event.data;
    if (empty || event.isComposing || event.inputType !== "insertText" || typed === null) return false;
    const change = () =>
      view.state.update(view.state.replaceSelection(typed), { userEvent: "input.type", scrollIntoView: true });
    const isHandled = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, typed, change));
    if (!isHandled) view.dispatch(change());
    event.preventDefault();
    return true;
  },
});

export interface EditorProps {
  readonly text: string;
  readonly schema: SQLNamespace;
  readonly change: (text: string) => void;
  readonly run: () => void;
}

export function Editor({ text, schema, change, run }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const language = useRef(new Compartment());
  const handlers = useRef({ change, run });
  handlers.current = { change, run };
  useEffect(() => {
    const place = host.current;
    if (!place) return undefined;
    const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => (handlers.current.run(), true) }])),
          lineNumbers(),
          highlightSpecialChars(),
          history(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          autocompletion({ icons: false }),
          REPLACEMENT,
          highlightActiveLine(),
          keymap.of([{ key: "Tab", run: acceptCompletion }, ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          language.current.of(dialectWith({})),
          syntaxHighlighting(COLOURS),
          LOOK,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "SQL" }),
          placeholder("SELECT … — Ctrl Enter runs it"),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) handlers.current.change(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    made.focus();
    return () => made.destroy();
    // The editor owns its text; what comes from outside is put in below.
  }, []);
  useEffect(() => {
    const made = view.current;
    if (made && made.state.doc.toString() !== text) {
      made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: text } });
    }
  }, [text]);
  useEffect(() => {
    view.current?.dispatch({ effects: language.current.reconfigure(dialectWith(schema)) });
  }, [schema]);
  return <div className="editor" ref={host} />;
}

function dialectWith(schema: SQLNamespace) {
  return sql({ dialect: PostgreSQL, schema, upperCaseKeywords: true });
}
