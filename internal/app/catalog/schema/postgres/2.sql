-- The chunk says what most of its members were compared with.
ALTER TABLE chunks ADD COLUMN damaged bigint NOT NULL DEFAULT 0, ADD COLUMN proven text NOT NULL DEFAULT '';
ALTER TABLE members ADD COLUMN proof text;
