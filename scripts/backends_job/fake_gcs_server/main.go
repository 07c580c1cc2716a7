// A Google Cloud Storage in memory: fsouza/fake-gcs-server, and before it what that lacks of the XML API.
//
// obstore and DuckDB write by the XML API: PUT of an object, with the condition x-goog-if-generation-match, and
// uploads in parts. Each becomes one upload of the JSON API, which the fake knows.
package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type uploads struct {
	mutex sync.Mutex
	last  int
	parts map[string]map[int][]byte
}

func (u *uploads) begin() string {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.last++
	id := strconv.Itoa(u.last)
	u.parts[id] = map[int][]byte{}
	return id
}

func (u *uploads) put(id string, number int, content []byte) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	parts, known := u.parts[id]
	if known {
		parts[number] = content
	}
	return known
}

func (u *uploads) take(id string) ([]byte, bool) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	parts, known := u.parts[id]
	delete(u.parts, id)
	var whole bytes.Buffer
	for number := 1; number <= len(parts); number++ {
		whole.Write(parts[number])
	}
	return whole.Bytes(), known
}

type front struct {
	fake    http.Handler
	uploads uploads
}

func (f *front) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	path := strings.TrimPrefix(request.URL.EscapedPath(), "/")
	bucket, object, isObject := strings.Cut(path, "/")
	isJson := bucket == "storage" || bucket == "upload" || bucket == "_internal" || bucket == "download"
	if isJson || !isObject || (request.Method != http.MethodPut && request.Method != http.MethodPost) {
		f.fake.ServeHTTP(answer, request)
		return
	}
	content, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	query := request.URL.Query()
	id := query.Get("uploadId")
	switch {
	case query.Has("uploads"):
		writeXml(answer, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket   string
			Key      string
			UploadId string
		}{Bucket: bucket, Key: unescape(object), UploadId: f.uploads.begin()})
	case query.Has("partNumber"):
		number, _ := strconv.Atoi(query.Get("partNumber"))
		if !f.uploads.put(id, number, content) {
			http.Error(answer, "no such upload", http.StatusNotFound)
			return
		}
		answer.Header().Set("ETag", fmt.Sprintf("%q", strconv.Itoa(number)))
	case id != "":
		whole, known := f.uploads.take(id)
		if !known {
			http.Error(answer, "no such upload", http.StatusNotFound)
			return
		}
		if f.insert(answer, request, bucket, object, whole) {
			writeXml(answer, struct {
				XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
				Bucket  string
				Key     string
				ETag    string
			}{Bucket: bucket, Key: unescape(object), ETag: `"whole"`})
		}
	default:
		if f.insert(answer, request, bucket, object, content) {
			answer.Header().Set("ETag", `"whole"`)
			answer.WriteHeader(http.StatusOK)
		}
	}
}

// insert uploads an object; it returns whether that succeeded, and otherwise answers.
func (f *front) insert(answer http.ResponseWriter, request *http.Request, bucket, object string, content []byte) bool {
	query := url.Values{"uploadType": {"media"}, "name": {unescape(object)}}
	if condition := request.Header.Get("x-goog-if-generation-match"); condition != "" {
		query.Set("ifGenerationMatch", condition)
	}
	target := fmt.Sprintf("/upload/storage/v1/b/%s/o?%s", bucket, query.Encode())
	inner, err := http.NewRequestWithContext(request.Context(), http.MethodPost, target, bytes.NewReader(content))
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return false
	}
	inner.Host = request.Host
	inner.RequestURI = target
	caught := &recorder{header: http.Header{}, status: http.StatusOK}
	f.fake.ServeHTTP(caught, inner)
	if caught.status >= 300 {
		http.Error(answer, caught.body.String(), caught.status)
		return false
	}
	return true
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header               { return r.header }
func (r *recorder) WriteHeader(status int)            { r.status = status }
func (r *recorder) Write(content []byte) (int, error) { return r.body.Write(content) }

func unescape(object string) string {
	name, err := url.PathUnescape(object)
	if err != nil {
		return object
	}
	return name
}

func writeXml(answer http.ResponseWriter, body any) {
	answer.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(answer).Encode(body); err != nil {
		log.Print(err)
	}
}

func main() {
	address := flag.String("address", "127.0.0.1:4443", "where to listen")
	flag.Parse()
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener:  true,
		PublicHost:  *address,
		ExternalURL: "http://" + *address,
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := &front{fake: fake.HTTPHandler(), uploads: uploads{parts: map[string]map[int][]byte{}}}
	log.Fatal(http.ListenAndServe(*address, handler))
}
