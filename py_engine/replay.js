export class Replay {}
