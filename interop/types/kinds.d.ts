// The module that the program makes: see kindsModule in internal/app/explore.
export const extensions: Record<string, number>;
export const bareNames: string[];
export const kindNames: string[];
export const useNames: string[];
export const colourings: Record<"age" | "packing" | "sharing" | "proof", string[]>;
export function kindOf(name: string): number;
