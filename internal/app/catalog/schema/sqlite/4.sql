-- The chunk says what most of its members were compared with.
ALTER TABLE chunks ADD COLUMN damaged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunks ADD COLUMN proven TEXT NOT NULL DEFAULT '';
ALTER TABLE members ADD COLUMN proof TEXT;
