-- A key for the one row of push_options. Procedures look rows up by index; where none can be used, planners before
-- PostgreSQL 18 take the plan for so expensive that they compile it (jit), which took 15 ms of each push.

ALTER TABLE queen.push_options ADD COLUMN id bool PRIMARY KEY DEFAULT true CHECK (id);
