module example.com/library

go 1.26.0

require fastdfs-gateway v0.0.0

replace fastdfs-gateway => ../../../..
