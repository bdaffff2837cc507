/** A Vite plugin that publishes Wisp's files in a folder of the site; default: "wisp". */
export declare function wisp(options?: { folder?: string }): {
  name: string;
  configureServer(server: any): void;
  generateBundle(this: any): void;
};
