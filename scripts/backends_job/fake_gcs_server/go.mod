module duckicelake/fake-gcs

go 1.25

require github.com/fsouza/fake-gcs-server v1.56.1
