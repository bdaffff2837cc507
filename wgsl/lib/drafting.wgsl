// What is known of one sequence's drafts: the buffer `drafting`. replay.js gets the fields' offsets from here.
struct Drafting {
  end: u32, // only positions before this one may be computed by prompt lookup; written by the host; 0: no prompt lookup
  length: u32, // tokens of the next draft by prompt lookup at most; the host writes the first value
  newest: u32, // position of the newest token while a draft model drafts the next ones
}
@bind var<storage, read_write> drafting: Drafting;
