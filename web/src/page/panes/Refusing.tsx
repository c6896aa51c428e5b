// Where the page is damaged or computes other numbers than PyTorch: why nothing is drawn.

import type { Refusal } from "../carried";
import { number, t } from "../words";

export function Refusing({ reason }: { reason: Refusal }) {
  return (
    <section class="refusal" role="alert">
      <h1>{t("This page shows nothing, because its numbers would be wrong.")}</h1>
      <p>{told(reason)}</p>
      <p>{t("Make the page again with vitral bundle, or copy the file again.")}</p>
    </section>
  );
}

function told(reason: Refusal): string {
  switch (reason.kind) {
    case "missing":
      return t("The file is not whole: the part “{part}” is missing.", { part: reason.part });
    case "damaged":
      return reason.tensor === undefined
        ? t("The file is damaged: the part “{part}” is not what was written.", { part: reason.part })
        : t("The file is damaged: the weights of “{tensor}” are not those that were written.", { tensor: reason.tensor });
    case "unable":
      return t("This browser cannot compute the page; a newer one may. It says: {reason}", { reason: reason.reason });
    case "differs":
      return t("After “{sentence}”, this browser computes {found} in “{name}” where PyTorch has {expected}.", {
        sentence: reason.sentence,
        name: reason.name,
        found: number(reason.found, 6),
        expected: number(reason.expected, 6),
      });
  }
}
