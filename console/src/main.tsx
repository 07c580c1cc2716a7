import "./api/login.ts";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client.ts";
import { followOtherTabs, forgetUnseenPages, isLong } from "./api/pages.ts";
import { router } from "./router.tsx";
import { SessionGate } from "./shell/SignIn.tsx";
import { applyTheme } from "./shell/theme.ts";
import "./styles/console.css";
import "./styles/administration.css";
import "./styles/lineage.css";

const FRESH_MS = 10_000;
const MOST_RETRIES = 2;
const LONGEST_PAUSE_MS = 30_000;

/** Only what may pass by itself is asked again: no answer, too many requests, a server that is busy. */
function isPassing(failures: number, error: unknown): boolean {
  return failures < MOST_RETRIES && error instanceof ApiError && [0, 429, 502, 503, 504].includes(error.status);
}

/** As the server wants it, up to half a minute; else after one second, then two. */
function pauseBefore(failures: number, error: unknown): number {
  const wanted = error instanceof ApiError ? error.retryAfterMs : null;
  return Math.min(wanted ?? 1000 * 2 ** failures, LONGEST_PAUSE_MS);
}

const client = new QueryClient({
  defaultOptions: {
    // Whoever acts without a network learns so at once, and decides whether to try again.
    mutations: { networkMode: "always" },
    queries: {
      staleTime: FRESH_MS,
      retry: isPassing,
      retryDelay: pauseBefore,
      refetchOnWindowFocus: (query) => !isLong(query),
      refetchOnReconnect: (query) => !isLong(query),
    },
  },
});
forgetUnseenPages(client);
followOtherTabs(client);

// Its address is relative to the page's, which the router changes: browsers look it up again each time.
for (const icon of document.querySelectorAll<HTMLLinkElement>("link[rel=icon]")) icon.href = new URL(icon.href).href;

applyTheme();
const root = document.getElementById("root");
if (!root) throw new Error("The page has no root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <SessionGate>
        <RouterProvider router={router} />
      </SessionGate>
    </QueryClientProvider>
  </StrictMode>,
);
