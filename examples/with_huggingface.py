"""The Hugging Face Trainer: a tiny BERT, started from scratch, finds a rare kind of made-up message.

python examples/with_huggingface.py      (pip install 'metricfit[huggingface]')

Nothing is downloaded: the model is built from its configuration, and words are numbers already.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from metricfit import MetricLoss
from metricfit.integrations.huggingface import TemperatureAnnealing, compute_loss_func

WORDS, LENGTH = 100, 16


class Messages(Dataset[dict[str, Tensor]]):
    """Random words; in one message out of eight some are of the ten words that give it away."""

    def __init__(self, n: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.words = torch.randint(10, WORDS, (n, LENGTH), generator=random)
        self.labels = (torch.rand(n, generator=random) < 0.125).long()
        telling = torch.randint(0, 10, (n, LENGTH), generator=random)
        chosen = torch.rand(n, LENGTH, generator=random) < 0.25 * self.labels[:, None]
        self.words = torch.where(chosen, telling, self.words)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


def scores(prediction: EvalPrediction) -> dict[str, float]:
    """The exact F1 of the rare class."""
    return {"f1": float(f1_score(prediction.label_ids, np.argmax(prediction.predictions, axis=-1)))}


def main() -> None:
    """Train with gradient accumulation: two micro-batches of 64 an optimiser step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=LENGTH,
            num_labels=2,
        )
    )
    loss = MetricLoss("f1[1]", cross_entropy=0.5, memory=0.9)  # the memory bridges the small micro-batches
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=10,
                per_device_train_batch_size=64,
                per_device_eval_batch_size=500,
                gradient_accumulation_steps=2,
                learning_rate=5e-3,
                eval_strategy="epoch",
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                logging_strategy="no",
                dataloader_pin_memory=False,
            ),
            train_dataset=Messages(1500, seed=1),
            eval_dataset=Messages(500, seed=2),
            compute_metrics=scores,
            compute_loss_func=compute_loss_func(loss),
            callbacks=[TemperatureAnnealing(loss, factor=0.7, patience=1)],
        )
        trainer.train()
        print(f"F1 of the rare class: {trainer.evaluate()['eval_f1']:.3f}, temperature: {loss.temperature:.3f}")


if __name__ == "__main__":
    main()
