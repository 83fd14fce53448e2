# The program with the engine go and nothing else:
#   docker build -t posttrain . && docker run --rm -v "$PWD:/work" posttrain mappo --max-steps 10
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOEXPERIMENT=simd go build -trimpath -ldflags '-s -w' -o /posttrain ./cmd/posttrain && mkdir /empty

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /posttrain /posttrain
# Temporary files, such as those of data in conversion.
COPY --from=build /empty /tmp
WORKDIR /work
ENTRYPOINT ["/posttrain"]
