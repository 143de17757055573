// Types for the scripts of the page, from the description of the server.
import type { components, paths } from "./api";

declare global {
  /** What the server answers at a path below /api/: any, if that is not described. */
  type Answer<P extends string> = `/api/${P}` extends infer K extends keyof paths
    ? paths[K] extends { get: { responses: { 200: { content: { "application/json": infer A } } } } } ? A : any
    : any;
  interface Window {
    toggleTheme(): void;
  }
  type Archive = components["schemas"]["Archive"] & { static?: boolean };
  type Row = components["schemas"]["Row"];
  type Rows = components["schemas"]["Rows"];
  type Entry = components["schemas"]["Shown"];
}
