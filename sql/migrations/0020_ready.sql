-- Its results have changed.
DROP FUNCTION IF EXISTS queen.get_depth_v1(text, text);
