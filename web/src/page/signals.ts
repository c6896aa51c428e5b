// Values that change, and what is computed or drawn from them. A change marks what has read it, and only what has really
// changed is computed again, once. What they do is what Preact's signals do; this page needs a fifth of those.

/** What a reader knows of what it has read: unchanged, perhaps changed, changed. */
const [FRESH, UNSURE, STALE] = [0, 1, 2] as const;
type State = typeof FRESH | typeof UNSURE | typeof STALE;

let current: Reader | null = null;
let depth = 0;
const waiting = new Set<Reader>();

/** What reads signals: a computed value, an effect, a component. */
export class Reader {
  readonly sources = new Set<Signal<unknown>>();
  private state: State = STALE;

  /** `run` is called where something that was read has changed; `marked` first, where it may have. */
  constructor(private readonly run: () => void, private readonly marked: () => void = () => waiting.add(this)) {}

  /** Notes what is read from now on, instead of what was read before, until the function that it returns is called. */
  start(): () => void {
    this.leave();
    const before = current;
    current = this;
    this.state = FRESH;
    return () => (current = before);
  }

  /** Reads nothing any more. */
  leave(): void {
    for (const each of this.sources) each.readers.delete(this);
    this.sources.clear();
    waiting.delete(this);
  }

  mark(state: State): void {
    const before = this.state;
    if (state > before) this.state = state;
    if (before === FRESH) this.marked();
  }

  /** Runs if something has changed. */
  update(): void {
    for (const each of this.sources) if (this.state === UNSURE) each.refresh();
    if (this.state === STALE) this.run();
    else this.state = FRESH;
  }
}

/** A value, and who has read it. */
export class Signal<Kind> {
  readonly readers = new Set<Reader>();

  constructor(protected now: Kind) {}

  refresh(): void {}

  /** The value, without noting who reads it. */
  peek(): Kind {
    return this.now;
  }

  get value(): Kind {
    try {
      return this.peek();
    } finally {
      if (current) {
        current.sources.add(this);
        this.readers.add(current);
      }
    }
  }

  set value(next: Kind) {
    if (next === this.now) return;
    this.now = next;
    batch(() => this.tell(STALE));
  }

  protected tell(state: State): void {
    for (const each of this.readers) each.mark(state);
  }
}

class Computed<Kind> extends Signal<Kind> {
  private fault: { error: unknown } | null = null;
  private readonly reader: Reader;

  constructor(make: () => Kind) {
    super(undefined as Kind);
    const run = () => {
      const before = this.now;
      const failed = this.fault;
      const end = this.reader.start();
      try {
        this.now = make();
        this.fault = null;
      } catch (error) {
        this.fault = { error };
      }
      end();
      if (this.now !== before || this.fault !== failed) this.tell(STALE);
    };
    this.reader = new Reader(run, () => this.tell(UNSURE));
  }

  refresh(): void {
    this.reader.update();
  }

  peek(): Kind {
    this.refresh();
    if (this.fault) throw this.fault.error;
    return this.now;
  }
}

export const signal = <Kind>(value: Kind): Signal<Kind> => new Signal(value);
export const computed = <Kind>(make: () => Kind): { readonly value: Kind; peek(): Kind } => new Computed(make);

/** Runs now, and whenever something has changed that was read; returns what ends it. */
export function effect(work: () => void): () => void {
  const reader = new Reader(() => {
    const end = reader.start();
    try {
      work();
    } finally {
      end();
    }
  });
  batch(() => reader.update());
  return () => reader.leave();
}

/** Several changes, after which everything is computed once. */
export function batch(work: () => void): void {
  depth++;
  try {
    work();
  } finally {
    try {
      if (depth === 1) settle();
    } finally {
      depth--;
    }
  }
}

/** Updates what waits, whatever of it fails. */
function settle(): void {
  const faults: unknown[] = [];
  for (const each of waiting) {
    waiting.delete(each);
    try {
      each.update();
    } catch (error) {
      faults.push(error);
    }
  }
  if (faults.length) throw faults[0];
}
