module github.com/ashlar-go/ashlar/test/bench

go 1.26.0
