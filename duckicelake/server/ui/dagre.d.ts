// What the page uses of dagre.js, which stands here as npm has it.
export interface Label {
  x: number;
  y: number;
  width: number;
  height: number;
  points: { x: number; y: number }[];
}

export class Graph {
  setGraph(label: Record<string, string | number>): void;
  setDefaultEdgeLabel(label: () => object): void;
  setNode(id: string, size: { width: number; height: number }): void;
  setEdge(from: string, to: string, label: object): void;
  node(id: string): Label;
  edge(from: string, to: string): Label;
  graph(): { width?: number; height?: number };
}

export function layout(graph: Graph): void;
