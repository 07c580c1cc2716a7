export function Logo() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <g fill="none" stroke="currentColor" strokeWidth="3">
        <path d="M11 8h5v16h5M16 16h5" />
        <rect x="3" y="4" width="8" height="8" rx="2" fill="currentColor" />
        <rect x="21" y="12" width="8" height="8" rx="2" />
        <rect x="21" y="21" width="8" height="8" rx="2" />
      </g>
    </svg>
  );
}
