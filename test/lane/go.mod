module github.com/ashlar-go/ashlar/test/lane

go 1.26.0
