import { type RefObject, useLayoutEffect, useRef, useState } from "react";

const USUAL_PX = 520;

/** How wide the place of a chart is: texts keep their size on every screen. */
export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(USUAL_PX);
  useLayoutEffect(() => {
    const measured = place.current;
    if (!measured) return undefined;
    const observer = new ResizeObserver(([entry]) =>
      setWidth(Math.max(120, Math.round(entry?.contentRect.width ?? USUAL_PX))),
    );
    observer.observe(measured);
    return () => observer.disconnect();
  }, []);
  return [place, width];
}
