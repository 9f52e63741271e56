module headway/tests/cluster/programs/pause

go 1.26.0
