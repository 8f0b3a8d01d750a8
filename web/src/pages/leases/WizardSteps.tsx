export const WIZARD_STEPS = ["What", "Machine", "Inside", "Price"] as const;
export type WizardStep = (typeof WIZARD_STEPS)[number];

/** Where one is in the wizard. Every step can be gone to at any time: nothing is sent before the last. */
export function WizardSteps({ step, onStep }: { step: WizardStep; onStep: (step: WizardStep) => void }) {
  const at = WIZARD_STEPS.indexOf(step);
  return (
    <ol className="grid grid-cols-4 gap-1" aria-label="Steps of the order" data-testid="wizard" data-step={step}>
      {WIZARD_STEPS.map((name, number) => (
        <li key={name} aria-current={name === step ? "step" : undefined}>
          <button type="button" onClick={() => onStep(name)} className={`w-full min-w-0 text-left hover:text-text ${number <= at ? "" : "text-muted"}`}>
            <span aria-hidden className={`mb-1.5 block h-1.5 rounded-md ${number < at ? "bg-online" : number === at ? "bg-volt" : "bg-line"}`} />
            <span className={name === step ? "font-semibold" : ""}>
              <span className="num small text-muted max-sm:hidden">{number + 1} </span>
              {name}
            </span>
          </button>
        </li>
      ))}
    </ol>
  );
}
