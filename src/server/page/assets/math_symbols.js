// LaTeX's names of symbols.
const table = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split("=")));

// Letters: identifiers, slanted.
export const letters = table(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ
  omicron=ο pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω ell=ℓ imath=ı jmath=ȷ`);
// Letters that stand upright.
export const upright = table(`
  Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω hbar=ℏ aleph=ℵ Re=ℜ Im=ℑ wp=℘ infty=∞
  emptyset=∅ varnothing=∅ nabla=∇ partial=∂ top=⊤ bot=⊥ angle=∠ triangle=△ square=□ Box=□ clubsuit=♣ diamondsuit=♢ heartsuit=♡ spadesuit=♠
  degree=° prime=′ $=$ %=% &=& #=# _=_`);
// Operators, relations, arrows and punctuation.
export const operators = table(`
  pm=± mp=∓ times=× div=÷ cdot=⋅ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ oslash=⊘ odot=⊙ dagger=† ddagger=‡ setminus=∖
  cap=∩ cup=∪ uplus=⊎ sqcap=⊓ sqcup=⊔ wedge=∧ land=∧ vee=∨ lor=∨ neg=¬ lnot=¬ forall=∀ exists=∃ nexists=∄ therefore=∴ because=∵
  le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ equiv=≡ approx=≈ cong=≅ sim=∼ simeq=≃ propto=∝ ll=≪ gg=≫ prec=≺ succ=≻ preceq=⪯ succeq=⪰
  doteq=≐ asymp=≍ lt=< gt=> in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ supsetneq=⊋ mid=∣ nmid=∤ parallel=∥ perp=⊥ vdash=⊢ dashv=⊣ models=⊨ vDash=⊨
  to=→ rightarrow=→ longrightarrow=⟶ leftarrow=← gets=← longleftarrow=⟵ leftrightarrow=↔ Rightarrow=⇒ Longrightarrow=⟹ implies=⟹ Leftarrow=⇐ impliedby=⟸ Leftrightarrow=⇔ iff=⟺ Longleftrightarrow=⟺
  mapsto=↦ longmapsto=⟼ uparrow=↑ downarrow=↓ updownarrow=↕ nearrow=↗ searrow=↘ hookrightarrow=↪ rightharpoonup=⇀ leftharpoonup=↼ rightleftharpoons=⇌ leadsto=⇝
  ldots=… dots=… dotsc=… cdots=⋯ dotsb=⋯ vdots=⋮ ddots=⋱ colon=: coloneqq=≔ vert=| Vert=‖ lvert=| rvert=| lVert=‖ rVert=‖ |=‖
  langle=⟨ rangle=⟩ lceil=⌈ rceil=⌉ lfloor=⌊ rfloor=⌋ lbrace={ rbrace=} lbrack=[ rbrack=] {={ }=} backslash=\\ surd=√ amalg=⨿ wr=≀ blacksquare=■ qed=□`);
// Large operators. True: limits stand above and below.
export const large = Object.fromEntries([
  ..."sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀ bigsqcup=⨆".split(" ").map((pair) => [...pair.split("="), true]),
  ..."int=∫ iint=∬ iiint=∭ oint=∮".split(" ").map((pair) => [...pair.split("="), false]),
].map(([name, sign, limits]) => [name, { sign, limits }]));
// Functions by name. True: limits stand below.
export const functions = Object.fromEntries([
  ..."sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan exp ln log lg arg deg dim hom ker".split(" ").map((name) => [name, false]),
  ..."lim max min sup inf limsup liminf det gcd Pr argmax argmin".split(" ").map((name) => [name, true]),
]);
export const accents = table(`hat=^ widehat=^ check=ˇ tilde=~ widetilde=~ bar=¯ overline=‾ vec=→ overrightarrow=→ overleftarrow=← dot=˙ ddot=¨ dddot=⃛ acute=´ grave=\` breve=˘ overbrace=⏞`);
export const underAccents = table(`underline=_ underbrace=⏟`);
export const spaces = { ",": .167, ":": .222, ">": .222, ";": .278, "!": -.167, " ": .25, quad: 1, qquad: 2, enspace: .5, thinspace: .167, "~": .25 };

// ---- alphabets: letters of Unicode's mathematical block

const alphabets = { mathbb: [0x1d538, 0x1d552, 0x1d7d8], mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce],
  mathcal: [0x1d49c, 0x1d4b6], mathscr: [0x1d49c, 0x1d4b6], mathfrak: [0x1d504, 0x1d51e], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2], mathtt: [0x1d670, 0x1d68a, 0x1d7f6] };
const exceptions = { mathbb: "Cℂ Hℍ Nℕ Pℙ Qℚ Rℝ Zℤ", mathcal: "Bℬ Eℰ Fℱ Hℋ Iℐ Lℒ Mℳ Rℛ eℯ gℊ oℴ", mathfrak: "Cℭ Hℌ Iℑ Rℜ Zℨ" };
exceptions.mathscr = exceptions.mathcal;

export const isAlphabet = (name) => Object.hasOwn(alphabets, name);
export const inAlphabet = (name, text) => [...text].map((letter) => {
  const exception = (exceptions[name] ?? "").split(" ").find((pair) => pair[0] === letter);
  if (exception) return exception.slice(1);
  const [upper, lower, digits] = alphabets[name];
  const at = (first, base) => (base ? String.fromCodePoint(base + letter.charCodeAt(0) - first.charCodeAt(0)) : letter);
  if (/[A-Z]/.test(letter)) return at("A", upper);
  if (/[a-z]/.test(letter)) return at("a", lower);
  return /[0-9]/.test(letter) ? at("0", digits) : letter;
}).join("");
