// What a page shows, as texts of its address: whoever is given the address sees the same.
import { useLocation, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";

/** How long after the last key a text goes into the address. */
const TYPED_MS = 250;

/** A text of the page that its address has by a name; it isn't there while it is the usual one. */
export function useAddressText(name: string, usual = "", delayMs = 0): readonly [string, (text: string) => void] {
  const search: Readonly<Record<string, unknown>> = useSearch({ strict: false });
  const navigate = useNavigate();
  const router = useRouter();
  const { pathname } = useLocation();
  const known = search[name];
  const shown = typeof known === "string" ? known : usual;
  const [text, setText] = useState(shown);
  const timer = useRef<number | null>(null);
  // Another address was gone to; what is being typed comes before it.
  useEffect(() => {
    if (timer.current === null) setText(shown);
  }, [shown]);
  const forget = () => {
    if (timer.current !== null) clearTimeout(timer.current);
    timer.current = null;
  };
  useEffect(() => forget, []);
  const choose = (chosen: string) => {
    forget();
    setText(chosen);
    const go = () => {
      timer.current = null;
      // Another page is on its way, and this one is still shown.
      if (router.latestLocation.pathname !== pathname) return;
      const change = (before: object) => ({ ...before, [name]: chosen === usual ? undefined : chosen });
      void navigate({ to: ".", search: change as never, replace: true, resetScroll: false });
    };
    if (delayMs > 0) timer.current = window.setTimeout(go, delayMs);
    else go();
  };
  return [text, choose];
}

/** A part of a name that is looked for, as the address has it. */
export function useAddressPart(): readonly [string, (text: string) => void] {
  return useAddressText("find", "", TYPED_MS);
}
