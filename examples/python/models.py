"""Makes a model by name, trains it with checkpoints, loads it from a checkpoint, and predicts."""

import windrow

model = windrow.make_model("listops", samples=1500, hidden=48)
trainer = windrow.Trainer(model, "adam", 0.01, clip_norm=5)
writer = windrow.CheckpointWriter("models_run", keep=1, resume=True)
for epoch in windrow.progress(range(6)):
    print(f"loss {trainer.train_epoch().loss:.3f}, scores {trainer.evaluate()}")
    trainer.save(writer)

loaded = windrow.load_model("models_run")
for prediction in loaded.predict(["[MAX 2 9 4 ]", "[MIN 5 [MAX 3 4 ] 8 ]"]):
    print(prediction.label)
