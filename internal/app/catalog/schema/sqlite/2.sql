-- The table of catalogues before this one, which had one location for a path.
CREATE VIEW file_locations (file_path, caf_file_id) AS
SELECT CAST(path AS TEXT), CAST(archive AS TEXT) FROM locations AS l
WHERE archive = (SELECT max(archive) FROM locations WHERE path = l.path);
