// The verdict on a number that a student typed.

export type Verdict = "right" | "rounding" | "follows" | "doubtful" | "short" | "wrong";

interface Answer {
  value: number;
  /** Digits after the point that were typed. */
  decimals: number;
}

/** Half a unit, and room for a number that lies on the edge. */
const HALF = 0.5 + 1e-6;

/**
 * Right: the true number, rounded to the digits typed. Rounding: the number that follows from the student's own rounded
 * numbers. Follows: from their own, wrong numbers. Doubtful: one unit off. Short: right, with fewer digits than asked.
 *
 * @param asked digits after the point that the exercise asks for
 * @param follows the number that the student's own earlier numbers give
 * @param sound whether these earlier numbers are right
 */
export function verdict(answer: Answer, truth: number, follows: number, sound: boolean, asked: number): Verdict {
  const near = (goal: number, decimals: number, room: number) =>
    answer.value === goal || Math.abs(answer.value - goal) <= room * 10 ** -decimals * (1 + 1e-9) + 1e-12;
  const unit = Math.min(Math.max(answer.decimals, asked), 12);
  if (near(truth, unit, HALF)) return "right";
  if (near(follows, unit, HALF)) return sound ? "rounding" : "follows";
  if (near(truth, unit, 1) || near(follows, unit, 1)) return "doubtful";
  if (answer.decimals < asked && near(truth, answer.decimals, HALF)) return "short";
  return "wrong";
}
