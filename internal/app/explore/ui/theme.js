// The theme is set before anything is painted: by choice, else as the system has it.
(() => {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const chosen = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const set = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? 'dark' : 'light');
    dispatchEvent(new Event('theme'));
  };
  set();
  system.addEventListener('change', set);
  window.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    try {
      if (next === (system.matches ? 'dark' : 'light')) localStorage.removeItem('theme');
      else localStorage.setItem('theme', next);
    } catch { /* it is forgotten then */ }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event('theme'));
  };
})();
