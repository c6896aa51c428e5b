// The list of keys, over the page.

import { useEffect, useRef } from "preact/hooks";
import { KEYS, listed } from "../keys";
import { t } from "../words";

export function Keys() {
  const dialog = useRef<HTMLDialogElement>(null);
  const isOpen = listed.value;
  useEffect(() => {
    if (isOpen && !dialog.current!.open) dialog.current!.showModal();
    if (!isOpen && dialog.current!.open) dialog.current!.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} class="keys" aria-labelledby="keys" onClose={() => (listed.value = false)}>
      <h2 id="keys">{t("Keys")}</h2>
      <dl>
        {KEYS.map(({ key, does }) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{t(does)}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Tab</kbd>
          </dt>
          <dd>{t("from picture to picture; in a picture, the arrows go from number to number and Enter chooses")}</dd>
        </div>
      </dl>
      <button autofocus onClick={() => (listed.value = false)}>
        {t("close")}
      </button>
    </dialog>
  );
}
