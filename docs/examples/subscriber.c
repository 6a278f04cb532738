/* Print the feed as CSV, and on stderr what was missed: cc subscriber.c -lzmq -o subscriber && ./subscriber ENDPOINT [SYSTEM/DATASET]
   For little-endian machines. ../feed.md describes the messages, and where to read what was missed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { FRAMES = 6, TOPICS = 256, LENGTH = 512 };
static struct { char topic[LENGTH], epoch[LENGTH]; uint64_t sequence; } known[TOPICS];

/* Receive a message: its frames, each with a NUL after it; returns how many. */
static int receive(void *socket, char *frame[FRAMES], size_t size[FRAMES])
{
    int count = 0, more = 1;
    for (zmq_msg_t part; more && zmq_msg_init(&part) == 0 && zmq_msg_recv(&part, socket, 0) >= 0; zmq_msg_close(&part)) {
        more = zmq_msg_more(&part);
        size_t bytes = zmq_msg_size(&part);
        if (count == FRAMES || !(frame[count] = realloc(frame[count], bytes + 1))) abort();
        memcpy(frame[count], zmq_msg_data(&part), bytes);
        frame[count][size[count] = bytes] = 0;
        count++;
    }
    return more ? -1 : count;
}

/* Report what was missed: the numbers of a topic have no holes as long as its epoch is the same. */
static void follow(const char *topic, const char *header, int carries)
{
    char epoch[LENGTH] = "";
    const char *at = strstr(header, "\"epoch\":\""), *number = strstr(header, "\"sequence\":");
    uint64_t sequence = number ? strtoull(number + 11, NULL, 10) : 0;
    int i = 0;
    if (at) sscanf(at + 9, "%511[^\"]", epoch);
    while (i < TOPICS - 1 && known[i].topic[0] && strcmp(known[i].topic, topic)) i++;
    if (known[i].topic[0] && strcmp(known[i].epoch, epoch)) fprintf(stderr, "%s: a new writer: read the file\n", topic);
    else if (known[i].topic[0] && sequence > known[i].sequence + carries) /* nothing, for a new subscriber */
        fprintf(stderr, "%s: missed %" PRIu64 "\n", topic, sequence - known[i].sequence - carries);
    snprintf(known[i].topic, LENGTH, "%s", topic);
    snprintf(known[i].epoch, LENGTH, "%s", epoch);
    known[i].sequence = sequence;
}

int main(int argc, char **argv)
{
    char *frame[FRAMES] = {0}, *names[65536];
    size_t size[FRAMES], prefix = argc > 2 ? strlen(argv[2]) : 0;
    void *socket = zmq_socket(zmq_ctx_new(), ZMQ_SUB);
    if (argc < 2 || zmq_setsockopt(socket, ZMQ_SUBSCRIBE, argc > 2 ? argv[2] : "", prefix) || zmq_connect(socket, argv[1])) return 2;
    for (int count; (count = receive(socket, frame, size)) > 0; fflush(stdout)) {
        uint32_t columns = 0, column;
        if (count > 1) follow(frame[0], frame[1], count == FRAMES);
        if (count != FRAMES || size[3] != 2 * size[4] || size[5] != size[3]) continue;
        for (char *name = strtok(frame[2], "\n"); name && columns < 65536; name = strtok(NULL, "\n")) names[columns++] = name;
        for (size_t i = 0; i < size[4] / 4; i++)
            if ((column = ((uint32_t *)frame[4])[i]) < columns)
                printf("%" PRId64 ",%s,%s,%.17g\n", ((int64_t *)frame[3])[i], frame[0], names[column], ((double *)frame[5])[i]);
    }
    return 1;
}
