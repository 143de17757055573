// Sets the theme before anything is painted: the user's choice, or otherwise the system's theme.
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
    } catch { /* then the choice is not remembered */ }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event('theme'));
  };
})();
