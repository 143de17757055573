"""DataLoader as torch's is, as far as a dataset can tell: worker processes that are forked, spawned or come from a
server, that are asked for batches ahead, one after the other, and whose batches come in order."""

import itertools
import multiprocessing
import random
from dataclasses import dataclass
from typing import Any


class IterableDataset:
    pass


@dataclass
class _Info:
    id: int
    num_workers: int
    dataset: Any
    seed: int


_info = None


def get_worker_info():
    return _info


class DataLoader:
    def __init__(
        self,
        dataset,
        batch_size=1,
        *,
        sampler=None,
        num_workers=0,
        multiprocessing_context=None,
        persistent_workers=False,
        drop_last=False,
        collate_fn,
        prefetch_factor=2,
    ):
        self.dataset, self.batch_size, self.sampler = dataset, batch_size, sampler
        self.workers, self.collate, self.ahead, self.drop_last = num_workers, collate_fn, prefetch_factor, drop_last
        self.context = multiprocessing.get_context(multiprocessing_context)
        self.iterable = isinstance(dataset, IterableDataset)
        self.persistent, self.pool = persistent_workers, None

    def __iter__(self):
        if not self.workers:
            fetch = _fetcher(self.dataset, self.iterable, self.batch_size, self.drop_last)
            for batch in self._asked():
                try:
                    got = fetch(batch)
                except StopIteration:
                    return
                yield self.collate(got)
            return
        if self.pool is None:
            pool = _Pool(self)
            if self.persistent:
                self.pool = pool
        else:
            pool = self.pool
        try:
            yield from pool.batches(self._asked(), self.ahead)
        finally:
            if not self.persistent:
                pool.stop()

    def __len__(self):
        if not self.iterable:
            return sum(1 for _ in self._asked())
        return len(self.dataset) // self.batch_size if self.drop_last else -(-len(self.dataset) // self.batch_size)

    def _asked(self):
        if self.iterable:
            return itertools.repeat(None)
        numbers = iter(range(len(self.dataset)) if self.sampler is None else self.sampler)
        return itertools.takewhile(bool, (list(itertools.islice(numbers, self.batch_size)) for _ in itertools.count()))


def _fetcher(dataset, iterable, batch_size, drop_last):
    if not iterable:
        return dataset.__getitems__
    samples = iter(dataset)

    def fetch(_):
        batch = list(itertools.islice(samples, batch_size))
        if not batch or drop_last and len(batch) < batch_size:
            raise StopIteration
        return batch

    return fetch


class _Pool:
    def __init__(self, loader):
        self.results = loader.context.Queue()
        self.tasks, self.processes = [], []
        seed = random.getrandbits(62)
        for number in range(loader.workers):
            tasks = loader.context.Queue()
            how = loader.dataset, loader.iterable, loader.batch_size, loader.drop_last, loader.collate
            process = loader.context.Process(
                target=_work, args=(_Info(number, loader.workers, loader.dataset, seed + number), *how, tasks, self.results), daemon=True
            )
            process.start()
            self.tasks.append(tasks)
            self.processes.append(process)

    def batches(self, asked, ahead):
        for tasks in self.tasks:
            tasks.put("begin")
        live = [True] * len(self.tasks)
        cycle = itertools.cycle(range(len(self.tasks)))
        sent, came = {}, {}

        def ask():
            for _ in live:
                worker = next(cycle)
                if live[worker]:
                    batch = next(asked, "none")
                    if batch != "none":
                        number = next(count)
                        sent[number] = worker
                        self.tasks[worker].put((number, batch))
                    return

        count = itertools.count()
        for _ in range(ahead * len(live)):
            ask()
        for number in itertools.count():
            while number not in came:
                if number not in sent:
                    return
                got, batch = self.results.get(timeout=60)
                came[got] = batch
            batch, worker = came.pop(number), sent.pop(number)
            if isinstance(batch, Exception):
                raise batch
            if batch is None:
                live[worker] = False
                if not any(live) and not sent:
                    return
                ask()
                continue
            ask()
            yield batch

    def stop(self):
        for tasks in self.tasks:
            tasks.put(None)
        for process in self.processes:
            process.join()


def _work(info, dataset, iterable, batch_size, drop_last, collate, tasks, results):
    global _info
    _info = info
    fetch = None
    while (task := tasks.get()) is not None:
        if task == "begin":
            fetch = _fetcher(dataset, iterable, batch_size, drop_last)
            continue
        number, batch = task
        try:
            got = collate(fetch(batch))
        except StopIteration:
            got = None
        except Exception as err:
            got = err
        results.put((number, got))
    results.cancel_join_thread()  # the loader was left in the middle
